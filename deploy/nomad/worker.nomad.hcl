# Workers on a Nomad cluster, each with part of a node:
#   nomad namespace apply queens
#   nomad var put -namespace queens nomad/jobs/queens-worker join=@worker.join
#   nomad job run -var count=20 worker.nomad.hcl
variable "count" {
  type    = number
  default = 2
}

job "queens-worker" {
  namespace = "queens"
  # Lower priority than services, which may preempt it; it then drains.
  type     = "batch"
  priority = 20

  group "worker" {
    count = var.count

    # Planned stops and lost nodes are not failures: reschedule without limit.
    reschedule {
      unlimited      = true
      delay          = "30s"
      delay_function = "exponential"
      max_delay      = "10m"
    }

    restart {
      attempts = 3
      interval = "10m"
      delay    = "15s"
      mode     = "fail"
    }

    # The spool migrates, also to another node.
    ephemeral_disk {
      size    = 300
      sticky  = true
      migrate = true
    }

    task "worker" {
      driver = "exec"
      user   = "nobody"

      config {
        command = "/usr/bin/worker"
        args    = ["--spool", "${NOMAD_ALLOC_DIR}/data/spool", "--idle-timeout", "5m"]
      }

      # A worker drains within 25 s. A client kills after 30 s at the latest, unless its max_kill_timeout is longer.
      kill_signal  = "SIGTERM"
      kill_timeout = "30s"

      resources {
        cores  = 4
        memory = 4096
      }

      env {
        QUEENS_JOIN    = "@${NOMAD_SECRETS_DIR}/worker.join"
        QUEENS_THREADS = "4"
        QUEENS_MEMORY  = "3600MiB"
        QUEENS_NAME    = "${node.unique.name}-${NOMAD_ALLOC_INDEX}"
      }

      template {
        destination = "${NOMAD_SECRETS_DIR}/worker.join"
        perms       = "0400"
        uid         = 65534
        data        = "{{ with nomadVar \"nomad/jobs/queens-worker\" }}{{ .join }}{{ end }}"
        # A new join string restarts the worker, which drains first.
        change_mode = "restart"
      }
    }
  }
}
