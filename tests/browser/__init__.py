"""The dashboard as a person meets it: a real server, real simulated runs, a real Chromium (`make test-browser`)."""
