//! What there is to see: a decode process's table, and prefills that write KV pages into its memory. All of them live in this process and
//! talk over loopback sockets; in yours there is the table alone.

use peerage::transport::tcp::{Tcp, TcpAddress};
use peerage::{Access, Grant, Heartbeat, Outcome, Peer, PeerName, PeerTable, Region, RemoteSlice, Slice};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Result<V> = std::result::Result<V, Box<dyn Error + Send + Sync>>;

const DECODE: &str = "decode-0";
const PAGE: usize = 4 << 20;

/// How a prefill behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Well,
    /// Dies, and is started again somewhere else.
    Restarts,
    /// Its connections are cut.
    IsCut,
    /// Nobody listens at its address.
    IsAway,
}

/// The last one's name is one that a page must not believe.
const PREFILLS: [(&str, Habit); 5] = [
    ("prefill-0", Habit::Well),
    ("prefill-1", Habit::Restarts),
    ("prefill-2", Habit::IsCut),
    ("prefill-3", Habit::IsAway),
    ("<script>document.title = 'taken over'</script>", Habit::Well),
];

const UP: Duration = Duration::from_secs(4);
const DOWN: Duration = Duration::from_millis(1500);

pub(crate) struct Cluster {
    table: PeerTable<Tcp>,
}

impl Cluster {
    pub(crate) fn start() -> Result<Cluster> {
        let table = PeerTable::builder(listen(DECODE)?).heartbeat(Heartbeat::default()).build()?;
        let decode = TcpAddress::from(table.transport().local_addr());
        for (name, habit) in PREFILLS {
            let (prefill, address) = match habit {
                Habit::IsAway => (None, TcpAddress::new("127.0.0.1:9")?), // "discard", which nobody runs any more
                _ => {
                    let prefill = Prefill::start(name, &decode)?;
                    let address = prefill.address();
                    (Some(prefill), address)
                }
            };
            let peer = table.insert(name, address)?;
            let prefill = Arc::new(Mutex::new(prefill));
            let page = Region::zeroed(PAGE);
            table.register(&page)?;
            let requests = Requests { table: table.clone(), peer: peer.clone(), prefill: prefill.clone(), page };
            thread::Builder::new().name(format!("requests of {name}")).spawn(move || requests.run())?;
            if matches!(habit, Habit::Restarts | Habit::IsCut) {
                let (decode, name) = (decode.clone(), format!("trouble of {name}"));
                thread::Builder::new().name(name).spawn(move || trouble(habit, &peer, &prefill, &decode))?;
            }
        }
        Ok(Cluster { table })
    }

    pub(crate) fn table(&self) -> &PeerTable<Tcp> {
        &self.table
    }

    /// Parts from all peers. The threads that make requests end with the process.
    pub(crate) fn end(self) {
        match self.table.shutdown(Instant::now() + Duration::from_secs(5)).wait() {
            Ok(report) if report.is_clean() => {}
            Ok(report) => crate::complain(&format!("not everything was given back: {report:?}")),
            Err(error) => crate::complain(&error.to_string()),
        }
    }
}

fn listen(name: &str) -> Result<Tcp> {
    Ok(Tcp::builder().name(PeerName::new(name)?).bind("127.0.0.1:0")?)
}

/// A process that writes KV pages into pages that decode lends it.
struct Prefill {
    table: PeerTable<Tcp>,
    decode: Peer<Tcp>,
    block: Slice,
}

impl Prefill {
    fn start(name: &str, decode: &TcpAddress) -> Result<Prefill> {
        let table = PeerTable::builder(listen(name)?).build()?;
        let block = Region::zeroed(PAGE);
        table.register(&block)?;
        let decode = table.insert(DECODE, decode.clone())?;
        Ok(Prefill { table, decode, block: block.slice(0..PAGE)? })
    }

    fn begin(&self) -> Result<Work> {
        let back = self.table.grant(&self.decode, &self.block, Access::Write)?;
        Ok(Work { decode: self.decode.clone(), block: self.block.clone(), back })
    }

    fn address(&self) -> TcpAddress {
        TcpAddress::from(self.table.transport().local_addr())
    }
}

/// Prefill's part of a request. It may die meanwhile.
struct Work {
    decode: Peer<Tcp>,
    block: Slice,
    back: Grant,
}

impl Work {
    fn write(&self, page: RemoteSlice, deadline: Instant) -> Result<()> {
        thread::sleep(Duration::from_millis(350)); // the prompt is read
        self.decode.wait_ready(deadline)?;
        done(self.decode.lease()?.write(&self.block, page)?.wait(deadline))
    }
}

/// Requests to one prefill, one at a time.
struct Requests {
    table: PeerTable<Tcp>,
    peer: Peer<Tcp>,
    prefill: Arc<Mutex<Option<Prefill>>>,
    page: Region,
}

impl Requests {
    fn run(&self) {
        loop {
            // One that fails is for a router to send elsewhere; here there is none.
            let _ = self.request();
            thread::sleep(Duration::from_millis(150));
        }
    }

    /// Prefill writes a page that is lent to it, and gets back what decode added.
    fn request(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        let lease = self.peer.lease()?; // refused at once if there is no connection, and then asks for one
        let work = lock(&self.prefill).as_ref().ok_or("it is down")?.begin()?;
        let page = self.page.slice(0..PAGE)?;
        let lent = self.table.grant(&self.peer, &page, Access::Write)?;
        let written = work.write(lent.remote(), deadline);
        // Whatever came of it: the page is not used again while anything can still land in it.
        let lent = lent.revoke();
        while !lent.wait(Instant::now() + Duration::from_secs(1)) {}
        written?;
        done(lease.write(&page, work.back.remote())?.wait(deadline))
    }
}

fn done(outcome: Option<Outcome>) -> Result<()> {
    match outcome {
        Some(Outcome::Done) => Ok(()),
        other => Err(format!("the page did not come: {other:?}").into()),
    }
}

/// Gives its prefill, or the way to it, trouble for ever.
fn trouble(habit: Habit, peer: &Peer<Tcp>, prefill: &Mutex<Option<Prefill>>, decode: &TcpAddress) -> Result<()> {
    loop {
        thread::sleep(UP);
        if habit == Habit::IsCut {
            if let Some(prefill) = &*lock(prefill) {
                prefill.table.transport().cut_inbound_of(prefill.decode.name());
            }
            continue;
        }
        let died = lock(prefill).take();
        drop(died);
        thread::sleep(DOWN);
        let again = Prefill::start(peer.name().as_str(), decode)?;
        // Discovery says where it is now: the next request finds it, whatever the backoff.
        peer.update(again.address())?;
        *lock(prefill) = Some(again);
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
