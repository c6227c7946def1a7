//! A peer on another host, and a network between that fails: network namespaces, which `ci/ucx_hosts.sh` makes.
//!
//! This process is in one, which bridges two more: `there`, whose network fails, and `well`, whose does not. libucp's keepalives
//! are off, so it raises no error for what the network swallows; what is asked is that the table's own probes find the peer
//! dead while the fault lasts, that it comes back after it with a new generation, and that the other peer notices nothing.

use crate::processes::ready_again;
use crate::resources::ONCE;
use crate::support::*;
use peerage::transport::ucx::Ucx;
use peerage::{Backoff, Heartbeat, PeerTable, Phase};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Names of the namespaces, and the addresses in them: `here=10.0.0.1 there=10.0.0.2 well=10.0.0.3`. The bridge's ports are
/// called `there` and `well`.
const HOSTS: &str = "PEERAGE_TEST_HOSTS";
const PORT: u16 = 7_000;

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The cable is pulled, for so long.
    LinkDown(Duration),
    /// The firewall swallows everything.
    Dropped(Duration),
    /// The firewall answers everything with RST.
    Reset,
    Restarted,
    /// The process is killed while the cable is pulled, so that no word of its death gets through. It starts again with the
    /// cable in place: libucp takes a device that is down when it looks for devices for none.
    KilledWhileDown,
}

const FAULTS: [Fault; 6] = [
    Fault::LinkDown(Duration::from_secs(5)),
    Fault::Dropped(Duration::from_secs(5)),
    Fault::Reset,
    Fault::Restarted,
    Fault::KilledWhileDown,
    Fault::LinkDown(Duration::from_secs(45)),
];

struct Hosts {
    namespaces: [String; 3],
    addrs: [SocketAddr; 3],
}

const HERE: usize = 0;
const THERE: usize = 1;
const WELL: usize = 2;
const NAMES: [&str; 3] = ["here", "there", "well"];

impl Hosts {
    fn read(from: &str) -> Hosts {
        let parts: Vec<_> = from.split(' ').map(|host| host.split_once('=').unwrap()).collect();
        let part = |at: usize| (parts[at].0.to_owned(), SocketAddr::new(parts[at].1.parse().unwrap(), PORT));
        let [here, there, well] = [HERE, THERE, WELL].map(part);
        Hosts { namespaces: [here.0, there.0, well.0], addrs: [here.1, there.1, well.1] }
    }

    fn serve(&self, host: usize) -> Served {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[host]]).env("UCX_NET_DEVICES", "eth0");
        let test = this_binary("support::serves");
        command.arg(test.get_program()).args(test.get_args());
        Served::start_by(command, NAMES[host], self.addrs[host])
    }

    fn link(&self, state: &str) {
        run("ip", &["-n", &self.namespaces[HERE], "link", "set", "there", state]);
    }

    /// What the firewall of `there` does with everything that comes.
    fn firewall(&self, how: &str, rule: &[&str]) {
        let into = ["netns", "exec", &self.namespaces[THERE], "iptables", how, "INPUT", "-p", "tcp"];
        run("ip", &[&into, rule].concat());
    }

    /// Does it, waits until `is_dead` or longer, and undoes it.
    fn suffer(&self, fault: Fault, served: &mut Option<Served>, is_dead: &dyn Fn() -> bool) {
        let begin = Instant::now();
        let dead_within = |lasts: Duration| {
            eventually("it is found dead", is_dead);
            println!("{fault:?}: found dead after {:.1?}", begin.elapsed());
            assert!(lasts.is_zero() || begin.elapsed() < lasts, "{fault:?}: found only when it was over");
            std::thread::sleep((begin + lasts).saturating_duration_since(Instant::now()));
        };
        match fault {
            Fault::LinkDown(lasts) => {
                self.link("down");
                dead_within(lasts);
                self.link("up");
            }
            Fault::Dropped(lasts) => {
                self.firewall("-I", &["-j", "DROP"]);
                dead_within(lasts);
                self.firewall("-D", &["-j", "DROP"]);
            }
            Fault::Reset => {
                let reset = ["-j", "REJECT", "--reject-with", "tcp-reset"];
                self.firewall("-I", &reset);
                dead_within(Duration::ZERO);
                self.firewall("-D", &reset);
            }
            Fault::Restarted => {
                served.take().unwrap().kill();
                *served = Some(self.serve(THERE));
            }
            Fault::KilledWhileDown => {
                self.link("down");
                served.take().unwrap().kill();
                dead_within(Duration::ZERO);
                self.link("up");
                *served = Some(self.serve(THERE));
            }
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let ended = Command::new(program).args(args).status().unwrap();
    assert!(ended.success(), "{program} {args:?}: {ended}");
}

fn table(at: SocketAddr) -> PeerTable<Ucx> {
    let ucx = Ucx::builder().name(name(NAMES[HERE])).trust_network(true).bind(at).unwrap();
    let short = Duration::from_millis(50);
    let backoff = Backoff { base: short, cap: 10 * short, ..Backoff::default() };
    let heartbeat = Heartbeat { interval: Duration::from_millis(300), dead_after: Duration::from_secs(1) };
    let builder = PeerTable::builder(ucx).backoff(backoff).breaker(None).heartbeat(heartbeat);
    builder.connect_timeout(Duration::from_secs(2)).build().unwrap()
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// fails if: a peer that the network swallowed is taken for alive, or its death costs another peer a message.
#[test]
fn a_network_that_fails_costs_its_peer_alone_and_it_comes_back() {
    let Ok(hosts) = std::env::var(HOSTS) else {
        return println!("SKIPPED: there are no networks to break; ci/ucx_hosts.sh makes them");
    };
    let hosts = Hosts::read(&hosts);
    let (mut there, mut well) = (Some(hosts.serve(THERE)), hosts.serve(WELL));
    let table = table(hosts.addrs[HERE]);
    let [peer, healthy] = [THERE, WELL].map(|host| table.insert(NAMES[host], hosts.addrs[host].into()).unwrap());
    ready_again(&healthy);
    let (undisturbed, over, sent) = (healthy.generation(), AtomicBool::new(false), AtomicUsize::new(0));
    let mut before = 0;
    std::thread::scope(|scope| {
        // Also if something here panics.
        let _over = Over(&over);
        let sender = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                healthy.lease().expect("it is well").notify(b"x").expect("its network is");
                sent.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for (at, fault) in FAULTS.into_iter().enumerate() {
            let was = ready_again(&peer);
            if at == 1 {
                before = descriptors();
            }
            hosts.suffer(fault, &mut there, &|| peer.phase() != Phase::Ready || peer.generation() > was);
            let begin = Instant::now();
            let mut is = ready_again(&peer);
            while is == was {
                eventually("the end of the old generation is noticed", || peer.generation() > was);
                is = ready_again(&peer);
            }
            let served = there.as_mut().unwrap();
            let had = served.messages();
            peer.lease().unwrap().notify(b"x").unwrap();
            eventually("it gets through", || served.messages() > had);
            println!("{fault:?}: generation {} to {}, back {:.1?} after it", was.0, is.0, begin.elapsed());
            assert!(!sender.is_finished(), "the healthy peer was disturbed by {fault:?}");
        }
    });
    let sent = sent.into_inner();
    eventually("the healthy peer has all", || well.messages() == sent);
    assert_eq!(healthy.generation(), undisturbed);
    println!("the healthy peer: {sent} messages, generation {} all the time", undisturbed.0);
    eventually("its descriptors are back", || descriptors() <= before + ONCE);
    println!("descriptors {before} to {}", descriptors());
    assert!(table.shutdown(soon()).wait().unwrap().is_clean());
}
