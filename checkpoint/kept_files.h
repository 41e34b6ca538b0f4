/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files that go with an image that stays (criu_kept_files.c). For C and C++. */
#pragma once

#define SOUK_KEPT_FILES_NAME \
    "souk-kept-files" /* in the image; empty, before the dump, it is asked */
#define SOUK_TO_DISK_NAME \
    "souk-to-disk" /* there before a dump: nothing of the job stays open (criu_fifos.c) */
#define SOUK_MADE_AGAIN_NAME \
    "souk-made-again" /* paths and the inodes made for them, each with a zero behind it */
