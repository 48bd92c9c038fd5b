"""What a stream is made of: ids, nodes of entries, groups with their pending lists."""
