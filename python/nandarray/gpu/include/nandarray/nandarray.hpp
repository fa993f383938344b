// Everything of a client on a host: `#include <nandarray/nandarray.hpp>`. Kernels include `nandarray/array.hpp`.
#pragma once

#include "array.hpp"
#include "device.hpp"
#include "region.hpp"
