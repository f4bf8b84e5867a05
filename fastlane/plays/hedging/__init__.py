"""The play `Hedging`: a second attempt beside a late one."""
