// SPDX-License-Identifier: Apache-2.0
// Names only: the wheel of torch has the header of its Gloo process group, but not the headers that
// one includes. comm/c10d.cpp holds such objects by pointer and never looks inside.
#pragma once
