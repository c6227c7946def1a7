//! The process that is written to.

use crate::MIB;
use crate::process::Part;
use crate::writes::DEPTH;
use peerage::transport::nixl::{Nixl, NixlAddress};
use peerage::{Access, DataPlane, Region, RemoteSlice};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

/// Whom it lends its pages to.
pub(crate) const BORROWER: &str = "here";

pub(crate) struct Served {
    child: Child,
    pub(crate) address: NixlAddress,
    pub(crate) grants: Vec<RemoteSlice>,
}

impl Served {
    pub(crate) fn start(name: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Part::of_this(&["serve", name]).0;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut next = || from_hex(&lines.next().ok_or("it has ended")??);
        let address = NixlAddress::from_bytes(&next()?)?;
        let mut grant = || Ok(RemoteSlice::from_bytes(&next()?.try_into().map_err(|_| "no grant")?));
        let grants = (0..DEPTH).map(|_| grant()).collect::<Result<_, Box<dyn Error>>>()?;
        Ok(Served { child, address, grants })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(name: &str) -> Result<(), Box<dyn Error>> {
    let nixl = Nixl::named(name.try_into()?)?;
    let region = Region::zeroed(DEPTH * MIB);
    nixl.register(&region)?;
    println!("{}", to_hex(&nixl.local_address()?.to_bytes()));
    let borrower = BORROWER.try_into()?;
    let mut grants = Vec::new();
    for at in 0..DEPTH {
        grants.push(nixl.grants().lend(&borrower, &region.slice(at * MIB..(at + 1) * MIB)?, Access::Write));
    }
    grants.iter().for_each(|grant| println!("{}", to_hex(&grant.remote().to_bytes())));
    // Until whoever started it is gone.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let byte = |at| Ok(u8::from_str_radix(text.get(at..at + 2).ok_or("half a byte")?, 16)?);
    (0..text.len()).step_by(2).map(byte).collect()
}
