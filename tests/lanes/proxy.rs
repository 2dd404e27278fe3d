//! A way to a node that can be cut without either end being told, as by a middlebox that forgets.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use libp2p::{Multiaddr, multiaddr::Protocol};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream, UdpSocket,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::support::Transport;

pub struct Proxy {
    pub address: Multiaddr,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    /// A way to `target`.
    pub async fn to(transport: Transport, target: &Multiaddr) -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let mut parts = target.iter();
        let (Some(Protocol::Ip4(ip)), Some(Protocol::Tcp(port) | Protocol::Udp(port))) = (parts.next(), parts.next())
        else {
            panic!("an address of a test");
        };
        let target = SocketAddr::from((ip, port));
        let address = match transport {
            Transport::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                tokio::spawn(stream(listener, target, Arc::clone(&cut)));
                format!("/ip4/127.0.0.1/tcp/{port}")
            }
            Transport::Quic => {
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                let port = socket.local_addr().unwrap().port();
                tokio::spawn(datagrams(Arc::new(socket), target, Arc::clone(&cut)));
                format!("/ip4/127.0.0.1/udp/{port}/quic-v1")
            }
        };
        Self { address: address.parse().unwrap(), cut }
    }

    /// From now on nothing comes through, and no end hears of it.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

async fn stream(listener: TcpListener, target: SocketAddr, cut: Arc<AtomicBool>) {
    loop {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(target).await.unwrap();
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::spawn(carry(near_in, far_out, Arc::clone(&cut)));
        tokio::spawn(carry(far_in, near_out, Arc::clone(&cut)));
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: Arc<AtomicBool>) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        if cut.load(Ordering::SeqCst) {
            // Neither passed on nor closed.
            if read == 0 {
                std::future::pending::<()>().await;
            }
            continue;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

async fn datagrams(near: Arc<UdpSocket>, target: SocketAddr, cut: Arc<AtomicBool>) {
    let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let Ok((length, from)) = near.recv_from(&mut bytes).await else { continue };
        if cut.load(Ordering::SeqCst) {
            continue;
        }
        if let Entry::Vacant(way) = ways.entry(from) {
            let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
            far.connect(target).await.unwrap();
            way.insert(Arc::clone(&far));
            let (near, cut) = (Arc::clone(&near), Arc::clone(&cut));
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                loop {
                    let Ok(length) = far.recv(&mut bytes).await else { continue };
                    if !cut.load(Ordering::SeqCst) {
                        let _ = near.send_to(&bytes[..length], from).await;
                    }
                }
            });
        }
        let _ = ways[&from].send(&bytes[..length]).await;
    }
}
