//! A headless Chromium, told what to do by its DevTools protocol: JSON messages that end with a zero byte, over its
//! descriptors 3 (to it) and 4 (from it). It ends, with its own children, when these are closed.

use crate::server::PATIENCE;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Set where the browser has to be there, as in CI.
const REQUIRED: &str = "PEERAGE_STATUS_BROWSER";

/// It may look for nothing outside: no updates, no metrics, no name but addresses of this machine.
const FLAGS: [&str; 12] = [
    "--headless=new",
    "--no-sandbox", // it can't have one as root, as in a container; it sees this repository's page alone
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1400,1000",
    "--remote-debugging-pipe",
];

/// One tab. What went wrong in it is kept.
pub(crate) struct Browser {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    profile: PathBuf,
    session: Option<String>,
    asked: u64,
    complaints: Vec<String>,
    loaded: Vec<String>,
}

impl Browser {
    /// `None`, said loudly, if there is no browser.
    ///
    /// # Panics
    /// If there is none where it is required.
    pub(crate) fn open(url: &str) -> Option<Browser> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let Some(program) = names.into_iter().find_map(installed) else {
            assert!(std::env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, and there is none of {names:?}");
            let skipped = format!("SKIPPED: what a browser shows of the status page: there is none of {names:?}\n");
            // Around the harness, which keeps what a test prints to itself if it passes.
            std::io::stderr().write_all(skipped.as_bytes()).unwrap();
            return None;
        };
        let profile = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{}", std::process::id()));
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .env("XDG_CONFIG_HOME", &profile) // what it keeps of crashes, too
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (heard, from) = channel();
        std::thread::spawn(move || {
            for message in out.split(0).map_while(Result::ok) {
                if heard.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Browser { child, to, from, profile, session: None, asked: 0, complaints: Vec::new(), loaded: Vec::new() };
        browser.attach(url);
        Some(browser)
    }

    fn attach(&mut self, url: &str) {
        let tab = self.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].take();
        let attached = self.call("Target.attachToTarget", json!({ "targetId": tab, "flatten": true }));
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.call("Page.navigate", json!({ "url": url }));
    }

    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes()).and_then(|()| to.flush()).expect("the browser listens");
        let give_up = Instant::now() + PATIENCE;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            let mut heard = self.from.recv_timeout(left).unwrap_or_else(|error| panic!("{method}: {error}"));
            if heard["id"] == self.asked {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].take();
            }
            self.note(&heard);
        }
    }

    fn note(&mut self, heard: &Value) {
        let what = &heard["params"];
        match heard["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(what["exceptionDetails"].to_string()),
            Some("Runtime.consoleAPICalled") if what["type"] == "error" => self.complaints.push(what.to_string()),
            // That a server can't be reached is not the page's fault.
            Some("Log.entryAdded") if what["entry"]["level"] == "error" && what["entry"]["source"] != "network" => {
                self.complaints.push(what["entry"].to_string());
            }
            Some("Network.requestWillBeSent") => {
                self.loaded.push(what["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let mut answer = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Exceptions, errors on the console and breaches of the page's security policy, until now.
    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The addresses of everything that was asked for.
    pub(crate) fn loaded(&self) -> &[String] {
        &self.loaded
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.to = None;
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}
