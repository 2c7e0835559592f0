"""What turns files, or a simulator, into samples of (condition, target): one module per problem of the paper."""
