//! That it links, and with what.

use peerage_ucx_sys::*;
use std::ffi::CStr;

#[test]
fn the_library_says_its_version_and_knows_its_statuses() {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three places to write to.
    unsafe { ucp_get_version(&mut major, &mut minor, &mut release) };
    println!("UCX {major}.{minor}.{release}");
    assert!((major, minor) >= (1, 13), "UCX {major}.{minor}.{release} is older than these bindings");
    // SAFETY: any number may be asked about; the answer is a static string.
    let text = unsafe { CStr::from_ptr(ucs_status_string(UCS_ERR_UNREACHABLE)) };
    assert_eq!(text.to_str().unwrap(), "Destination is unreachable");
    // SAFETY: as above. A status without a name is a number like any other.
    let unknown = unsafe { CStr::from_ptr(ucs_status_string(-99)) };
    assert!(unknown.to_str().unwrap().contains("nknown"), "{unknown:?}");
}
