//! H: ends that nobody hears of.

use crate::common::*;
use peerage::Updated;
use peerage::transport::memory::{MemoryAddress, Step};

/// Who waits for an attempt that is given up, because the peer has another address now, is moved to the next one.
///
/// fails if: h5 (who waits is left with the attempt that was given up)
#[test]
fn case_h5_who_waits_for_an_attempt_at_the_old_address_gets_the_outcome_of_the_one_at_the_new() {
    let world = world();
    let peer = world.peer("p");
    let held = world.memory.steps().hold(Step::Connect, "p");
    let mut waiting = Box::pin(peer.ready());
    assert!(poll_once(&mut waiting).is_pending());
    held.wait_reached(1);
    let given_up = peer.generation();
    world.fabric.node("q");
    assert_eq!(peer.update(MemoryAddress::new("q")), Ok(Updated::Retired(given_up)));
    world.settle();
    assert!(poll_once(&mut waiting).is_pending());
    assert_eq!(world.connects("p"), 1, "one native connect at a time");
    held.release();
    assert!(block_on(waiting).unwrap() > given_up);
    assert_eq!(peer.record().unwrap().incarnation, Some(world.fabric.node("q").incarnation()));
    eventually("what came too late is closed", || world.closes("p") == 1);
}

#[cfg(all(feature = "tcp", not(peerage_loom)))]
mod over_sockets {
    use super::*;
    use crate::support::{self, Raw, T};
    use peerage::transport::frame::Frame;
    use peerage::{Access, DataPlane, Generation};

    /// The message about the data is dropped and counted where it still comes over the old connection, and comes once over the
    /// new one; what was said before the data came before. Each names the generation it came over.
    ///
    /// fails if: h1 (what is dropped is not counted), b12 (a replaced connection is heard like any other)
    #[test]
    fn case_h1_a_receiver_whose_connection_is_replaced_between_data_and_message_gets_the_message_once_of_the_new_one() {
        let b = support::tcp("b");
        let page = page_of(0);
        let grant = b.grants().lend(&support::name("a"), &page, Access::Write);
        let (mut old, _) = Raw::hello(&b, "a", Generation(5));
        old.frame(Frame::Notify { sequence: 1, message: b"before" });
        old.frame(Frame::Write { transfer: T, page: grant.remote() });
        old.frame(Frame::WriteData { transfer: T, bytes: &[1; PAGE] });
        assert_eq!(old.ack(), (T, None));
        let (mut new, _) = Raw::hello(&b, "a", Generation(6));
        old.frame(Frame::Notify { sequence: 2, message: b"written" });
        eventually("it is dropped and counted", || b.inbound_counts().outdated == 1);
        new.frame(Frame::Notify { sequence: 1, message: b"written" });
        for (generation, message) in [(Generation(5), &b"before"[..]), (Generation(6), b"written")] {
            let got = b.inbox().recv(far()).unwrap();
            assert_eq!((got.generation, &got.bytes[..]), (Some(generation), message));
        }
        assert_eq!((page.to_vec(), grant.running()), (vec![1; PAGE], 0));
        drop(old);
        eventually("the loan ends with its connection", || grant.is_quiesced());
        assert_eq!((b.inbox().len(), b.inbound_counts().outdated, b.inbound_counts().misbehaved), (0, 1, 0));
    }
}
