"""Ways to get a wrong result or to lose a file, each of which must end in a refusal or in the right result."""
