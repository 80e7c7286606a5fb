//! The HTTP face: pages for people, JSON for programs, metrics for monitoring, and what probes ask.
//!
//! It decodes, asks the driver, encodes, and decides nothing, as the gRPC face does; the JSON is what
//! `queensctl --json` prints, by the same code. Who may ask for what is in one table with the rest
//! (`doors::access`).

mod api;
mod error;
#[doc(hidden)]
pub mod foreign;
mod grid;
mod guard;
mod live;
mod map;
mod metrics;
mod page;
mod server;
mod sessions;
mod storage;
mod submit;

pub use server::{Dashboard, Http, HttpError};
pub use storage::StorageHealth;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::api::DESCRIPTION;
    use crate::doors::http_routes;

    #[test]
    fn the_description_and_the_table_of_access_name_the_same_routes() {
        let api: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let mut described = BTreeSet::new();
        for (route, methods) in api["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.insert((method.to_uppercase(), route.clone()));
            }
        }
        let table = http_routes().map(|(method, route)| (method.to_owned(), route.to_owned()));
        let interface = |(_, route): &(String, String)| {
            let probes = ["/healthz", "/readyz", "/metrics"].contains(&route.as_str());
            probes || route.starts_with("/api/")
        };
        assert_eq!(described, table.filter(interface).collect());
    }
}
