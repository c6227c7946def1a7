//! The same processes over every transport, on the system's clock.

use peerage::transport::Counting;
use peerage::transport::memory::{Fabric, Memory, MemoryAddress};
use peerage::{Backoff, Builder, DataPlane, Peer, PeerTable, Transport};
use std::time::Duration;

/// Some remote processes without tables of their own, and one process `here` that has one.
pub(crate) trait Fleet {
    type Transport: DataPlane;

    /// With these remote processes.
    fn of(remotes: &[&str]) -> Self;
    /// The transport of the process called `here`. Asked once.
    fn here(&self) -> Self::Transport;
    /// A remote process.
    fn remote(&self, name: &str) -> &Self::Transport;
    /// Where it is, also while it does not live.
    fn address(&self, name: &str) -> Address<Self>;
    /// It dies; connects are refused.
    fn stop(&mut self, name: &str);
    /// It comes back at the same address.
    fn start(&mut self, name: &str);
}

pub(crate) type Address<F> = <<F as Fleet>::Transport as Transport>::Address;
pub(crate) type Counted<F> = Counting<<F as Fleet>::Transport>;

/// A table over the counted transport of `here`, with a short backoff.
pub(crate) fn table_of<F: Fleet>(fleet: &F) -> PeerTable<Counted<F>> {
    table_with(fleet, |builder| builder)
}

/// The same with other settings.
pub(crate) fn table_with<F: Fleet>(
    fleet: &F,
    set: impl FnOnce(Builder<Counted<F>>) -> Builder<Counted<F>>,
) -> PeerTable<Counted<F>> {
    let short = Duration::from_millis(1);
    let backoff = Backoff { base: short, cap: short, ..Backoff::default() };
    set(PeerTable::builder(Counting::new(fleet.here())).backoff(backoff).breaker(None)).build().unwrap()
}

/// Puts a remote process in the table.
pub(crate) fn insert<F: Fleet>(fleet: &F, table: &PeerTable<Counted<F>>, name: &str) -> Peer<Counted<F>> {
    table.insert(name, fleet.address(name)).unwrap()
}

/// Over `Memory`.
pub(crate) struct InMemory {
    fabric: Fabric,
    remotes: Vec<(String, Memory)>,
}

impl Fleet for InMemory {
    type Transport = Memory;

    fn of(remotes: &[&str]) -> Self {
        let fabric = Fabric::new();
        let remotes = remotes.iter().map(|name| (name.to_string(), fabric.node(name))).collect();
        InMemory { fabric, remotes }
    }

    fn here(&self) -> Memory {
        self.fabric.node("here")
    }

    fn remote(&self, name: &str) -> &Memory {
        &self.remotes.iter().find(|(of, _)| of == name).expect("a remote of this fleet").1
    }

    fn address(&self, name: &str) -> MemoryAddress {
        MemoryAddress::new(name)
    }

    fn stop(&mut self, name: &str) {
        self.fabric.kill(name).wait();
    }

    fn start(&mut self, name: &str) {
        self.fabric.revive(name);
    }
}

#[cfg(feature = "tcp")]
pub(crate) use over_tcp::OverTcp;

#[cfg(feature = "tcp")]
mod over_tcp {
    use super::Fleet;
    use crate::common::eventually;
    use peerage::transport::tcp::{Tcp, TcpAddress};
    use std::net::SocketAddr;

    /// Over real sockets on the loopback interface.
    pub(crate) struct OverTcp {
        remotes: Vec<(String, SocketAddr, Option<Tcp>)>,
    }

    impl OverTcp {
        fn at(&mut self, name: &str) -> &mut (String, SocketAddr, Option<Tcp>) {
            self.remotes.iter_mut().find(|(of, ..)| of == name).expect("a remote of this fleet")
        }
    }

    impl Fleet for OverTcp {
        type Transport = Tcp;

        fn of(remotes: &[&str]) -> Self {
            let remotes = remotes.iter().map(|name| {
                let tcp = Tcp::builder().name((*name).try_into().unwrap()).bind("127.0.0.1:0").unwrap();
                (name.to_string(), tcp.local_addr(), Some(tcp))
            });
            OverTcp { remotes: remotes.collect() }
        }

        fn here(&self) -> Tcp {
            Tcp::builder().name("here".try_into().unwrap()).bind("127.0.0.1:0").unwrap()
        }

        fn remote(&self, name: &str) -> &Tcp {
            let remote = self.remotes.iter().find(|(of, ..)| of == name).expect("a remote of this fleet");
            remote.2.as_ref().expect("it lives")
        }

        fn address(&self, name: &str) -> TcpAddress {
            self.remotes.iter().find(|(of, ..)| of == name).expect("a remote of this fleet").1.into()
        }

        fn stop(&mut self, name: &str) {
            self.at(name).2 = None;
        }

        fn start(&mut self, name: &str) {
            let (name, address, tcp) = self.at(name);
            let name = name.as_str();
            // The listener of its former life closes on that life's own threads.
            eventually("the address is free", || {
                *tcp = Tcp::builder().name(name.try_into().unwrap()).bind(*address).ok();
                tcp.is_some()
            });
        }
    }
}

#[cfg(feature = "ucx")]
pub(crate) use over_ucx::{OverUcx, alone};

#[cfg(feature = "ucx")]
mod over_ucx {
    use super::Fleet;
    use crate::common::elsewhere::elsewhere;
    use crate::common::eventually;
    use peerage::transport::ucx::{Ucx, UcxAddress};
    use std::net::SocketAddr;

    /// Over the system's libucp, with the devices it chooses or with one; with pages as messages or by put and get.
    pub(crate) struct OverUcx<const TCP_ONLY: bool, const ONE_SIDED: bool> {
        remotes: Vec<(String, SocketAddr, Option<Ucx>)>,
    }

    /// Runs a test in a process of its own.
    pub(crate) fn alone(test: &str, body: fn()) {
        let (_, test) = test.split_once("::").expect("the crate comes first");
        if !elsewhere(test) {
            body();
        }
    }

    impl<const TCP_ONLY: bool, const ONE_SIDED: bool> OverUcx<TCP_ONLY, ONE_SIDED> {
        fn ucx(name: &str, at: SocketAddr) -> Option<Ucx> {
            let builder = Ucx::builder().name(name.try_into().unwrap()).one_sided(ONE_SIDED);
            if TCP_ONLY { builder.config("TLS", "tcp").bind(at).ok() } else { builder.bind(at).ok() }
        }

        fn at(&mut self, name: &str) -> &mut (String, SocketAddr, Option<Ucx>) {
            self.remotes.iter_mut().find(|(of, ..)| of == name).expect("a remote of this fleet")
        }
    }

    impl<const TCP_ONLY: bool, const ONE_SIDED: bool> Fleet for OverUcx<TCP_ONLY, ONE_SIDED> {
        type Transport = Ucx;

        fn of(remotes: &[&str]) -> Self {
            let remotes = remotes.iter().map(|name| {
                let ucx = Self::ucx(name, ([127, 0, 0, 1], 0).into()).expect("libucp listens on loopback");
                (name.to_string(), ucx.local_addr(), Some(ucx))
            });
            OverUcx { remotes: remotes.collect() }
        }

        fn here(&self) -> Ucx {
            Self::ucx("here", ([127, 0, 0, 1], 0).into()).expect("libucp listens on loopback")
        }

        fn remote(&self, name: &str) -> &Ucx {
            let remote = self.remotes.iter().find(|(of, ..)| of == name).expect("a remote of this fleet");
            remote.2.as_ref().expect("it lives")
        }

        fn address(&self, name: &str) -> UcxAddress {
            self.remotes.iter().find(|(of, ..)| of == name).expect("a remote of this fleet").1.into()
        }

        fn stop(&mut self, name: &str) {
            self.at(name).2 = None;
        }

        fn start(&mut self, name: &str) {
            let (name, address, ucx) = self.at(name);
            eventually("the address is free", || {
                *ucx = Self::ucx(name, *address);
                ucx.is_some()
            });
        }
    }
}

/// Makes each generic test a test over every transport.
macro_rules! with_transports {
    ($($test:ident),+ $(,)?) => {
        mod over_memory {
            $(#[test] fn $test() { super::$test::<crate::common::InMemory>() })+
        }
        #[cfg(feature = "tcp")]
        mod over_tcp {
            $(#[test] fn $test() { super::$test::<crate::common::OverTcp>() })+
        }
        #[cfg(feature = "ucx")]
        mod over_ucx {
            $(#[test] fn $test() {
                let test = concat!(module_path!(), "::", stringify!($test));
                crate::common::alone(test, super::$test::<crate::common::OverUcx<false, false>>);
            })+
        }
        #[cfg(feature = "ucx")]
        mod over_ucx_tcp {
            $(#[test] fn $test() {
                let test = concat!(module_path!(), "::", stringify!($test));
                crate::common::alone(test, super::$test::<crate::common::OverUcx<true, false>>);
            })+
        }
        #[cfg(feature = "ucx")]
        mod over_ucx_one_sided {
            $(#[test] fn $test() {
                let test = concat!(module_path!(), "::", stringify!($test));
                crate::common::alone(test, super::$test::<crate::common::OverUcx<false, true>>);
            })+
        }
        #[cfg(feature = "nixl")]
        mod over_nixl {
            $(#[test] fn $test() {
                let test = concat!(module_path!(), "::", stringify!($test));
                crate::common::alone_with_nixl(test, super::$test::<crate::common::OverNixl>);
            })+
        }
    };
}
pub(crate) use with_transports;
