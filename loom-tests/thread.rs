//! Threads of models: loom's, with a stack on which a panic can be told. The lane's frames, unoptimized, leave too little of
//! loom's own 32 KiB, and a model that overflows its stack never ends.

pub(crate) use loom::thread::*;

/// In words, which loom's documentation calls bytes.
const STACK: usize = 32 * 1024;

pub(crate) fn spawn<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    Builder::new().stack_size(STACK).spawn(f).expect("loom refuses no thread")
}
