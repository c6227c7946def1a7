#!/usr/bin/env bash
# What other systems are told of a table, and what people see of it in a browser, which has to be there: `ci/install.sh chromium`.
set -euo pipefail
cd "$(dirname "$0")/.."
features=serde,tracing,metrics
cargo build --features "$features" --example status
PEERAGE_STATUS_BROWSER=required cargo test --features "$features" --test observed --test metrics --test status
