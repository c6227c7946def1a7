//! The process that is written to.

use crate::{DEPTH, MIB};
use peerage::transport::nixl::{Nixl, NixlAddress};
use peerage::{Access, DataPlane, Region, RemoteSlice};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

pub(crate) const ROLE: &str = "--serve";

pub(crate) struct Served {
    child: Child,
    pub(crate) address: NixlAddress,
    pub(crate) grants: Vec<RemoteSlice>,
}

impl Served {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg(ROLE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || from_hex(&lines.next().unwrap().unwrap());
        let address = NixlAddress::from_bytes(&next()).unwrap();
        let grants = (0..DEPTH).map(|_| RemoteSlice::from_bytes(&next().try_into().unwrap())).collect();
        Served { child, address, grants }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve() {
    let nixl = Nixl::builder().name("served".try_into().unwrap()).build().unwrap();
    let region = Region::zeroed(DEPTH * MIB);
    nixl.register(&region).unwrap();
    println!("{}", to_hex(&nixl.local_address().unwrap().to_bytes()));
    let lend = |at: usize| {
        let page = region.slice(at * MIB..(at + 1) * MIB).unwrap();
        nixl.grants().lend(&"here".try_into().unwrap(), &page, Access::Write)
    };
    let grants: Vec<_> = (0..DEPTH).map(lend).collect();
    grants.iter().for_each(|grant| println!("{}", to_hex(&grant.remote().to_bytes())));
    // Until whoever started it is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
