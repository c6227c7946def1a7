//! Finds UCX, and with the feature `bindgen` generates the bindings from its headers.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let found = pkg_config::Config::new().atleast_version("1.13").probe("ucx");
    let ucx = found.unwrap_or_else(|error| {
        eprintln!(
            "error: UCX 1.13 or later was not found; on Debian and Ubuntu: apt-get install -y libucx-dev pkg-config"
        );
        eprintln!("error: elsewhere, let PKG_CONFIG_PATH name the directory of its ucx.pc");
        eprintln!("{error}");
        std::process::exit(1);
    });
    // pkg-config names libuct too, whose symbols only libucp itself uses.
    println!("cargo:version={}", ucx.version);
    #[cfg(feature = "bindgen")]
    generate(&ucx.include_paths);
}

#[cfg(feature = "bindgen")]
fn generate(include: &[std::path::PathBuf]) {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
    let bindings = bindgen::Builder::default()
        .header_contents("ucx.h", "#include <ucp/api/ucp.h>\n")
        .clang_args(include.iter().map(|path| format!("-I{}", path.display())))
        .allowlist_function("ucp_.*|ucs_status_string")
        .allowlist_type("ucp_.*|ucs_status_t|ucs_thread_mode_t")
        .allowlist_var("UCP_.*")
        .blocklist_function("ucp_.*_nb|ucp_.*_nbr|ucp_config_print|ucp_.*_print_info")
        .blocklist_type("_?IO_.*|FILE")
        // A status this version has no name for must stay a number: as a Rust enum it would be undefined behaviour.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(true)
        .generate()
        .expect("libclang reads the headers of UCX; apt-get install -y libclang-dev");
    bindings.write_to_file(out).expect("OUT_DIR can be written");
}
