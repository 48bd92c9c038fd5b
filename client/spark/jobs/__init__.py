"""Jobs that load, audit and archive: `delaylog spark backfill|audit|archive`."""
