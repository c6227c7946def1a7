//! The `Tcp` transport called directly, without a table: what it promises its callers, and what strangers can't do to it.
#![cfg(all(feature = "tcp", not(peerage_loom)))]

mod cancels;
mod connects;
mod ends;
mod goodbyes;
mod liars;
mod notifications;
mod ordinary;
mod pages;
mod refused;
mod secrets;
mod silence;
mod strangers;
mod support;
