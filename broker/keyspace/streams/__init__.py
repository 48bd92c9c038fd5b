"""Parts of a stream: ids, nodes of entries, groups with their pending lists."""
