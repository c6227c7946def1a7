//! The one setting that libucp takes from the environment only: whether a listener may have a port that old connections still
//! hold. Without it a restarted process gets its port back after a minute.
//!
//! Changing the environment is sound only while nobody reads it, so it is done before `main`, when there is one thread. What
//! was set by then is left as it is.

/// Called by the loader, before `main`.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = reuse_addresses;

#[cfg(target_os = "linux")]
extern "C" fn reuse_addresses() {
    // SAFETY: 1. both are static strings that end with 0; libc copies them.
    //         2. the loader calls this before `main`, where no other thread of the program reads the environment yet. Ends if: a
    //         library with this in it is loaded later, while other threads do.
    unsafe { libc::setenv(c"UCX_TCP_CM_REUSEADDR".as_ptr(), c"y".as_ptr(), 0) };
}

/// Keeps the above in programs that use the transport.
pub(super) fn is_linked() {
    #[cfg(target_os = "linux")]
    std::hint::black_box(&BEFORE_MAIN);
}
