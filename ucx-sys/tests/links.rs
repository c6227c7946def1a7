//! The bindings meet a library that is there and new enough.

use peerage_ucx_sys as ucx;
use std::ffi::CStr;

#[test]
fn the_library_is_1_13_or_later_and_names_its_statuses() {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: the three point at integers that live through the call.
    unsafe { ucx::ucp_get_version(&mut major, &mut minor, &mut release) };
    println!("UCX {major}.{minor}.{release}");
    assert!((major, minor) >= (1, 13), "UCX {major}.{minor}.{release}");
    // SAFETY: the answer is a constant text of the library, also for a number that it has no name for.
    let text = |status| unsafe { CStr::from_ptr(ucx::ucs_status_string(status)) }.to_str().unwrap();
    assert_eq!(text(ucx::UCS_ERR_CONNECTION_RESET), "Connection reset by remote peer");
    assert!(text(-99).contains("-99"), "{}", text(-99));
}
