"""Programs for people who change node-fleet: they write the generated parts of docs and dashboards."""
