/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A restore for trial (criu_trial.c). For C and C++. */
#pragma once

#define SOUK_TRIAL_NAME "souk-trial" /* in the image, before CRIU is launched */
