//! What the parent tells a child when it starts it: the words of its command line after `--child`.

use crate::modes::{Mode, TransportKind};
use crate::scenario::Scenario;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Takes requests, lends pages, checks them.
    Decode,
    /// Writes pages.
    Prefill,
    /// A prefill that gets no requests, and cuts its connections again and again.
    Victim,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) listen: SocketAddr,
    /// Those it sends to.
    pub(crate) peers: Vec<(String, SocketAddr)>,
    pub(crate) mode: Mode,
    pub(crate) transport: TransportKind,
    pub(crate) scenario: Option<Scenario>,
    pub(crate) threads: usize,
    pub(crate) page_bytes: usize,
    pub(crate) connect_delay: Duration,
    /// `None`: the library's default backoff.
    pub(crate) constant_retry: Option<Duration>,
    /// How often latency is measured.
    pub(crate) probe_every: Duration,
    pub(crate) revoke: bool,
}

impl Setup {
    pub(crate) fn to_args(&self) -> Vec<String> {
        let role = match self.role {
            Role::Decode => "decode",
            Role::Prefill => "prefill",
            Role::Victim => "victim",
        };
        let mut args = vec![
            format!("role={role}"),
            format!("name={}", self.name),
            format!("listen={}", self.listen),
            format!("mode={}", self.mode),
            format!("transport={}", self.transport),
            format!("threads={}", self.threads),
            format!("page-bytes={}", self.page_bytes),
            format!("connect-delay-us={}", self.connect_delay.as_micros()),
            format!("probe-every-us={}", self.probe_every.as_micros()),
            format!("revoke={}", self.revoke),
        ];
        args.extend(self.scenario.map(|scenario| format!("scenario={scenario}")));
        args.extend(self.constant_retry.map(|delay| format!("constant-retry-us={}", delay.as_micros())));
        args.extend(self.peers.iter().map(|(name, address)| format!("peer={name}@{address}")));
        args
    }

    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let args: Vec<_> =
            args.filter_map(|arg| Some(arg.split_once('=')?).map(|(k, v)| (k.to_owned(), v.to_owned()))).collect();
        let of = |key: &str| args.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let needed = |key: &str| of(key).ok_or_else(|| format!("a child needs {key}=; only its parent starts it"));
        let micros = |text: &str| parsed::<u64>(text).map(Duration::from_micros);
        let peer = |text: &str| {
            let (name, address) = text.split_once('@').ok_or_else(|| format!("no peer: {text}"))?;
            Ok((name.to_owned(), parsed(address)?))
        };
        Ok(Setup {
            role: match needed("role")? {
                "decode" => Role::Decode,
                "prefill" => Role::Prefill,
                "victim" => Role::Victim,
                role => return Err(format!("no role: {role}")),
            },
            name: needed("name")?.to_owned(),
            listen: parsed(needed("listen")?)?,
            peers: args.iter().filter(|(k, _)| k == "peer").map(|(_, v)| peer(v)).collect::<Result<_, String>>()?,
            mode: needed("mode")?.parse()?,
            transport: needed("transport")?.parse()?,
            scenario: of("scenario").map(str::parse).transpose()?,
            threads: parsed(needed("threads")?)?,
            page_bytes: parsed(needed("page-bytes")?)?,
            connect_delay: micros(needed("connect-delay-us")?)?,
            constant_retry: of("constant-retry-us").map(micros).transpose()?,
            probe_every: micros(needed("probe-every-us")?)?,
            revoke: parsed(needed("revoke")?)?,
        })
    }
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not understood: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_survives_the_command_line() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let setup = Setup {
            role: Role::Decode,
            name: "decode-0".into(),
            listen: address(1),
            peers: vec![("prefill-0".into(), address(2)), ("victim".into(), address(3))],
            mode: Mode::CheckThenAdd,
            transport: TransportKind::Tcp,
            scenario: Some(Scenario::Storm),
            threads: 7,
            page_bytes: 4096,
            connect_delay: Duration::from_millis(5),
            constant_retry: Some(Duration::from_millis(2)),
            probe_every: Duration::from_micros(250),
            revoke: false,
        };
        assert_eq!(Setup::from_args(setup.to_args().into_iter()), Ok(setup.clone()));
        let plain = Setup { role: Role::Prefill, peers: vec![], scenario: None, constant_retry: None, ..setup };
        assert_eq!(Setup::from_args(plain.to_args().into_iter()), Ok(plain));
    }

    #[test]
    fn what_no_parent_wrote_is_refused() {
        for args in ["", "role=decode", "role=king name=x"] {
            assert!(Setup::from_args(args.split(' ').map(String::from)).is_err(), "{args}");
        }
    }
}
