"""What is written in other words than the algebra has: functions of other systems, dates with intervals beside them."""
