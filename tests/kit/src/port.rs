//! Ports of programs that a test starts.

use std::net::Ipv4Addr;

use tokio::net::TcpSocket;

/// A port of loopback for a program that a test starts and stops. Until it is dropped, the system gives the port to
/// no one who asks for any, also while the program does not run.
pub struct Port(TcpSocket);

impl Port {
    pub fn reserve() -> Self {
        // A program can listen there, because this socket does not and both allow reuse.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option of sockets");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("loopback has a free port");
        Self(socket)
    }

    pub fn number(&self) -> u16 {
        self.0.local_addr().expect("a bound port").port()
    }
}
