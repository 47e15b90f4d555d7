"""Questions about logs, answered from the views and plans that a cleaning is made of."""
