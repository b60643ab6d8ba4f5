"""Parts that stacks are composed of. (Not called constructs: that would shadow the package.)"""
