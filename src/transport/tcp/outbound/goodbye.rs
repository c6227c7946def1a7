//! The last word of a connection that is closed from this side.

use super::ending;
use super::send::Unsent;
use crate::transport::frame::{Farewell, Frame};
use crate::transport::tcp::connection::{Ending, Link};
use crate::transport::tcp::wire::until_end;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a peer that is said goodbye to has to take it and to end its side. A live one takes a round trip; a stopped one
/// must not hold up a removal for longer than somebody who waits for it would like.
pub(in crate::transport::tcp) const LINGER: Duration = Duration::from_secs(1);

/// The end of a frame that was begun, what was accepted before, the last word; then waits until the peer has taken it, which
/// it shows by ending its side. A connection that failed is not waited for.
pub(super) async fn say_goodbye(link: &Link, stream: &mut TcpStream, mut unsent: Unsent, farewell: Farewell) {
    let waits = matches!(farewell, Farewell::Shutdown | Farewell::Removed);
    if waits {
        unsent.out.append(&mut link.lock().notes);
    }
    link.codec.encode(&Frame::Goodbye { code: farewell as u8 }, &mut unsent.out);
    if !waits {
        // What the socket has room for.
        let _ = stream.try_write(&unsent.out[unsent.written..]);
        return;
    }
    let sent = match farewell {
        // Up to the deadline of the close.
        Farewell::Shutdown => unsent.send(stream).await.is_ok(),
        _ => matches!(timeout(LINGER, unsent.send(stream)).await, Ok(Ok(()))),
    };
    if sent && stream.shutdown().await.is_ok() {
        let _ = timeout(LINGER, until_end(stream)).await;
    }
}

/// Resolves when there is no more time for a goodbye.
pub(super) async fn hurried(link: &Link) {
    while !matches!(ending(link).await, Ending::Now | Ending::Cut) {
        link.end.notified().await;
    }
}
