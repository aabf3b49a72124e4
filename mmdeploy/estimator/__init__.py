"""What a picture, a video or a sound costs: the router's price and the model's truth.

`router` prices, `visual`, `video` and `audio` count, `pairing` compares.

Pure arithmetic: no clock, no network, no environment.
"""
