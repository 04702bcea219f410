"""Where prices come from: run.toml, a provider's models endpoint, a list that works offline. What they come to is `costs`'s."""
