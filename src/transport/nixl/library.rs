//! Where NIXL is, and loading it.
//!
//! What is loaded is `libnixl_capi.so`. By its own run path it finds the rest of its package, and NIXL finds its plugins beside
//! itself, so no folder has to be on the loader's path and nothing has to be loaded before it. `NIXL_PLUGIN_DIR`, where it is set,
//! is NIXL's to read.
//!
//! It is loaded once in a process and never unloaded: its threads, and thread-locals of what it is linked with, outlive any agent.

use super::capi::{Capi, Missing};
use crate::sync::lock;
use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
use std::env;
use std::ffi::{CStr, OsStr, c_void};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const FILE: &str = "libnixl_capi.so";
const VARIABLE: &str = "PEERAGE_NIXL_LIB";

/// One place where NIXL was looked for.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// A file or a pattern; a bare name is looked up by the system's loader.
    pub place: PathBuf,
    /// Why it was not taken.
    pub why: String,
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {}: {}", self.place.display(), self.why)
    }
}

/// Why NIXL was not loaded.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NixlLibraryError {
    /// It is not here, or can't be loaded. Install it, or say where it is.
    #[error(
        "NIXL's {FILE} can't be loaded; install it with `pip install nixl-cu13 --no-deps`, or name the file in {VARIABLE}; looked for at:{}",
        looked.iter().map(Looked::to_string).collect::<String>()
    )]
    NotFound {
        /// Every place that was looked at, in order. What was named is the only one.
        looked: Vec<Looked>,
    },
    /// It is no library of NIXL's, or of another version. Install 1.5 or later.
    #[error("{} has no {symbol}; install a NIXL that has it with `pip install nixl-cu13 --no-deps`", path.display())]
    Incomplete {
        /// The library.
        path: PathBuf,
        /// What it lacks.
        symbol: &'static str,
    },
    /// A process has one NIXL. Name the same file everywhere.
    #[error("{} is asked for, and {} is loaded in this process", asked.display(), loaded.display())]
    Another {
        /// What is asked for.
        asked: PathBuf,
        /// What is loaded.
        loaded: PathBuf,
    },
}

/// NIXL, loaded.
pub(super) struct Library {
    pub(super) api: Capi,
    path: PathBuf,
    /// What it was found by.
    place: PathBuf,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Library").field(&self.path).finish()
    }
}

impl Library {
    /// The library at `named`, or where `PEERAGE_NIXL_LIB` says, or the first that is found. Waits for another thread that
    /// loads it.
    pub(super) fn load(named: Option<&Path>) -> Result<Arc<Self>, NixlLibraryError> {
        static LOADED: Mutex<Option<Arc<Library>>> = Mutex::new(None);
        let mut loaded = lock(&LOADED);
        let by_variable = || env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let named = named.map(Path::to_owned).or_else(by_variable).map(file_of);
        if let Some(library) = &*loaded {
            return match named {
                Some(asked) if asked != library.place && !is_same(&asked, &library.path) => {
                    Err(NixlLibraryError::Another { asked, loaded: library.path.clone() })
                }
                _ => Ok(library.clone()),
            };
        }
        let (candidates, mut looked) = match named {
            Some(path) => (vec![path], Vec::new()),
            None => everywhere(prefixes(|name| env::var_os(name))),
        };
        let mut found = None;
        let mut refused = Vec::new();
        for place in candidates {
            match open(&place) {
                Ok(object) => {
                    found = Some((object, place));
                    break;
                }
                Err(why) => refused.push(Looked { place, why }),
            }
        }
        let Some((object, place)) = found else {
            refused.append(&mut looked);
            return Err(NixlLibraryError::NotFound { looked: refused });
        };
        // SAFETY: it bears the name of NIXL's C API or was named as it, and is never unloaded, see `open`.
        let api = match unsafe { Capi::of(&object) } {
            Ok(api) => api,
            Err(Missing(symbol)) => return Err(NixlLibraryError::Incomplete { path: place, symbol }),
        };
        let path = home_of(&api).unwrap_or_else(|| place.clone());
        let library = Arc::new(Library { api, path, place });
        *loaded = Some(library.clone());
        Ok(library)
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A folder stands for the library in it.
fn file_of(path: PathBuf) -> PathBuf {
    if path.is_dir() { path.join(FILE) } else { path }
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn open(place: &Path) -> Result<ManuallyDrop<Object>, String> {
    // SAFETY: the initializers of NIXL's libraries may run on any thread, and nobody unloads them: this handle is never closed.
    //         Ends if: a file is named that is not NIXL's; then its initializers do what they do.
    let opened = unsafe { Object::open(Some(place), RTLD_NOW | RTLD_LOCAL) };
    opened.map(ManuallyDrop::new).map_err(|error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })
}

/// The file that the loader took, when it was left the choice.
fn home_of(api: &Capi) -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the answer has a place.
    let known = unsafe { libc::dladdr(api.destroy_agent as *const c_void, info.as_mut_ptr()) } != 0;
    // SAFETY: all zeroes is a valid `Dl_info`: null pointers.
    let name = unsafe { info.assume_init() }.dli_fname;
    (known && !name.is_null()).then(|| {
        // SAFETY: the loader's string, which ends with 0 and lives while the library is loaded.
        let name = unsafe { CStr::from_ptr(name) };
        OsStr::from_bytes(name.to_bytes()).into()
    })
}

/// Where Python packages are installed: the active environment first, then that of the `python3` that a shell would run.
fn prefixes(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(&variable).map(PathBuf::from).collect();
    if let Some(path) = variable("PATH") {
        let commands = env::split_paths(&path).filter(|folder| folder.join("python3").exists());
        prefixes.extend(commands.filter_map(|folder| folder.parent().map(Path::to_owned)));
    }
    prefixes.extend(variable("HOME").map(|home| Path::new(&home).join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut seen = Vec::new();
    prefixes.retain(|prefix| {
        !prefix.as_os_str().is_empty() && !seen.contains(prefix) && {
            seen.push(prefix.clone());
            true
        }
    });
    prefixes
}

/// What to try, in order, and the prefixes where there is nothing to try.
fn everywhere(prefixes: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<Looked>) {
    let (mut candidates, mut looked) = (vec![PathBuf::from(FILE)], Vec::new());
    for prefix in prefixes {
        let found = packages(&prefix);
        if found.is_empty() {
            let place = prefix.join("lib/python3*/*-packages/.nixl*.mesonpy.libs").join(FILE);
            looked.push(Looked { place, why: "there is none".into() });
        }
        candidates.extend(found);
    }
    (candidates, looked)
}

/// NIXL's packages under one prefix: of the newest Python first, for the newest CUDA first.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        for python in entries(&prefix.join(lib), |name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                let is_nixl = |name: &str| name.starts_with(".nixl") && name.ends_with(".mesonpy.libs");
                found.extend(entries(&python.join(packages), is_nixl).into_iter().map(|folder| folder.join(FILE)));
            }
        }
    }
    found.retain(|file| file.exists());
    found
}

/// The entries of a folder by name, the highest number first.
fn entries(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let number = |path: &PathBuf| -> Vec<u32> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let Ok(listed) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = listed
        .flatten()
        .filter(|entry| is_wanted(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort_by(|one, other| number(other).cmp(&number(one)).then_with(|| one.cmp(other)));
    found
}

#[cfg(all(test, not(peerage_loom)))]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_bad_path_is_the_only_place_and_the_error_says_what_to_install() {
        let error = Library::load(Some(Path::new("/nowhere/libnixl_capi.so"))).unwrap_err();
        let NixlLibraryError::NotFound { looked } = &error else { panic!("{error}") };
        assert_eq!(looked.len(), 1);
        let text = error.to_string();
        for part in ["/nowhere/libnixl_capi.so", "pip install nixl-cu13 --no-deps", VARIABLE] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_library_that_is_not_nixls_is_named_with_what_it_lacks() {
        let Err(error) = Library::load(Some(Path::new("libc.so.6"))) else { panic!("the C library is no NIXL") };
        assert!(matches!(&error, NixlLibraryError::Incomplete { symbol: "nixl_capi_create_configured_agent", .. }));
        assert!(error.to_string().starts_with("libc.so.6 has no nixl_capi_"));
    }

    #[test]
    fn the_newest_package_is_tried_first_and_prefixes_without_one_are_told() {
        let root = env::temp_dir().join(format!("peerage-nixl-{}", std::process::id()));
        let make = |package: &str| {
            let folder = root.join("venv/lib").join(package);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(FILE), "").unwrap();
            folder.join(FILE)
        };
        let old = make("python3.9/site-packages/.nixl_cu13.mesonpy.libs");
        let cu12 = make("python3.11/site-packages/.nixl_cu12.mesonpy.libs");
        let cu13 = make("python3.11/site-packages/.nixl_cu13.mesonpy.libs");
        make("python3.11/site-packages/.other.mesonpy.libs");
        let (candidates, looked) = everywhere(vec![root.join("venv"), root.join("bare")]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(candidates, [FILE.into(), cu13, cu12, old]);
        assert_eq!(looked.len(), 1);
        assert!(looked[0].place.starts_with(root.join("bare")));
    }

    #[test]
    fn the_active_environment_comes_first_and_nothing_twice() {
        let found = prefixes(|name| match name {
            "VIRTUAL_ENV" | "CONDA_PREFIX" => Some("/venv".into()),
            "HOME" => Some("/home/me".into()),
            _ => None,
        });
        assert_eq!(found, ["/venv", "/home/me/.local", "/usr/local", "/usr"].map(PathBuf::from));
    }
}
