"""Many runs compared: rules and seeds from one file, paired statistics, figures."""
