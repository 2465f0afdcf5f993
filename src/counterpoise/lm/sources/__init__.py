"""Where documents come from: folders of domains, packages of public registries; tokenizers."""
