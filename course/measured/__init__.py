"""What a reader measured, drawn as the notebook's moving picture: functions for a panel."""
