"""Files and batches through the door."""
