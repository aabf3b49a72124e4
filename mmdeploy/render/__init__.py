"""From a spec to a bundle: resolve every value, render the files, write them."""
