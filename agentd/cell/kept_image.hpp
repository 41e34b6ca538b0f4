// SPDX-License-Identifier: GPL-2.0-or-later
// KeptImage: the image of a checkpoint that comes to this node and stays here, and how far the
// streams of the job had come in it. Owned by the Cell. What fails: the file system, no room.
#pragma once

#include <functional>
#include <string_view>

#include "agentd/cell/cell_image.hpp"
#include "agentd/cell/job_stdio.hpp"

namespace souk {

class KeptImage {
  public:
    KeptImage(CellImage& image, JobStdio& stdio) : image_(image), stdio_(stdio) {}

    // Makes the place for it. disk_secret: its files come encrypted; empty: plain.
    Status make_place(std::string_view disk_secret);
    // Keeps it when it has come. `done` is called once, when it is whole on the disk or cannot be.
    void keep(const Manifest& manifest, std::function<void(const Status&)> done);
    // Finds the ends of the job's streams in an image.
    void find_ends(const Manifest& manifest, int image);

  private:
    CellImage& image_;
    JobStdio& stdio_;
};

}  // namespace souk
