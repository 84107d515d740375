"""The few special functions that numpy lacks."""
import math

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])
