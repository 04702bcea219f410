"""What people and pages ask about a run. Everything here reads; nothing writes."""
