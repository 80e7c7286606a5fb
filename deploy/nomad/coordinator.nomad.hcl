# A coordinator on a Nomad cluster, on the client whose configuration has the host volume `queens`, which the user
# `nobody` can write:
#   client { host_volume "queens" { path = "/srv/queens" } }
#   nomad job run -var n=24 coordinator.nomad.hcl
#   nomad alloc exec -namespace queens -job queens-coordinator /usr/bin/queensctl --data-dir /data/coordinator \
#     token create --role worker --name nomad --json | jq -r .join > worker.join
variable "n" {
  type    = number
  default = 24
}

job "queens-coordinator" {
  namespace = "queens"
  type      = "service"
  priority  = 60

  group "coordinator" {
    # Only one coordinator may write to a data directory.
    count = 1

    # Tries again forever on the same client; its state is on the volume.
    restart {
      attempts = 10
      interval = "5m"
      delay    = "15s"
      mode     = "delay"
    }

    volume "queens" {
      type   = "host"
      source = "queens"
    }

    network {
      port "grpc" { static = 7171 }
      port "http" { static = 7172 }
    }

    service {
      name     = "queens-coordinator"
      provider = "nomad"
      port     = "http"

      check {
        type            = "http"
        protocol        = "https"
        path            = "/healthz"
        # The coordinator's own CA.
        tls_skip_verify = true
        interval        = "20s"
        timeout         = "10s"
      }
    }

    task "coordinator" {
      driver = "exec"
      user   = "nobody"

      config {
        command = "/usr/bin/coordinator"
      }

      volume_mount {
        volume      = "queens"
        destination = "/data"
      }

      kill_signal  = "SIGTERM"
      kill_timeout = "30s"

      resources {
        cpu    = 1000
        memory = 2048
      }

      env {
        QUEENS_N         = "${var.n}"
        QUEENS_DATA_DIR  = "/data/coordinator"
        QUEENS_LISTEN    = "0.0.0.0:${NOMAD_PORT_grpc}"
        QUEENS_HTTP      = "0.0.0.0:${NOMAD_PORT_http}"
        QUEENS_ADVERTISE = "${attr.unique.network.ip-address}:${NOMAD_PORT_grpc}"
      }
    }
  }
}
