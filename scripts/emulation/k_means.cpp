// The kernels of k_means.cu against plain loops.

using emulation::Order;

static std::mt19937 chance(11);

static void check_nearest(int rows, int columns, int chunk, Order order) {
    std::vector<float> scores((size_t)rows * columns), offsets(columns);
    for (float& score : scores) score = (float)(chance() % 6);  // ties are many
    for (float& offset : offsets) offset = (float)(chance() % 2);
    std::vector<float> best(rows);
    std::vector<u32> nearest(rows, ~0u);
    for (int first = 0; first < columns; first += chunk) {
        int width = std::min(chunk, columns - first);
        emulation::launch({(unsigned)(rows + 7) / 8, 1, 1}, 256, 0, order, [&] {
            nearest_centres(scores.data() + first, rows, width, columns, offsets.data() + first, first, best.data(), nearest.data());
        });
    }
    for (int row = 0; row < rows; row++) {
        int expected = 0;
        auto score = [&](int column) { return scores[(size_t)row * columns + column] + offsets[column]; };
        for (int column = 1; column < columns; column++)
            if (score(column) > score(expected)) expected = column;
        if (nearest[row] != (u32)expected || best[row] != score(expected)) {
            fprintf(stderr, "nearest_centres is wrong: %d rows, %d columns, chunks of %d: row %d\n", rows, columns, chunk, row);
            exit(1);
        }
    }
}

static void check_means(int rows, int dimension, int groups, Order order) {
    std::vector<float> values((size_t)rows * dimension), means((size_t)groups * dimension, 5.0f);
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(chance);
    std::vector<std::vector<u32>> lists(groups);
    for (int row = 0; row < rows; row++) lists[chance() % (unsigned)groups].push_back((u32)row);
    std::vector<u32> starts = {0}, members;
    for (auto& list : lists) {
        members.insert(members.end(), list.begin(), list.end());
        starts.push_back((u32)members.size());
    }
    emulation::launch({(unsigned)groups, (unsigned)(dimension + 255) / 256, 1}, 256, 0, order,
                      [&] { group_means(values.data(), dimension, starts.data(), members.data(), means.data()); });
    for (int group = 0; group < groups; group++)
        for (int column = 0; column < dimension; column++) {
            double sum = 0;
            for (u32 row : lists[group]) sum += values[(size_t)row * dimension + column];
            float expected = lists[group].empty() ? 5.0f : (float)(sum / (double)lists[group].size());
            if (means[(size_t)group * dimension + column] != expected) {
                fprintf(stderr, "group_means is wrong: %d rows, %d columns: group %d\n", rows, dimension, group);
                exit(1);
            }
        }
}

int main() {
    int done = 0;
    for (Order order : {Order::First, Order::Last, Order::Shuffled})
        for (int rows : {1, 7, 8, 9, 50})
            for (int columns : {1, 31, 32, 33, 300}) {
                check_nearest(rows, columns, 64, order);
                check_means(rows, columns, 5, order);
                done++;
            }
    printf("nearest_centres and group_means: %d cases each as by plain loops\n", done);
}
