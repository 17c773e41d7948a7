"""Recording a real job while its load and configuration change."""
