// The kernels of wanted_products.cu against plain loops.

using emulation::Order;

static std::mt19937 chance(13);

static std::vector<float> numbers(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(chance);
    return values;
}

static void expect(float found, double wanted, const char* what, int rows, int columns) {
    if (std::abs(found - wanted) <= 1e-5 * (1 + std::abs(wanted))) return;
    fprintf(stderr, "%s is wrong: %d rows, %d columns: %g where %g is right\n", what, rows, columns, found, wanted);
    exit(1);
}

static void check(int rows, int columns, Order order) {
    size_t count = (size_t)rows * columns;
    auto left = numbers(count), right = numbers(count), wanted = numbers(rows), before = numbers(count);
    std::vector<float> errors(rows), squares(rows);
    const unsigned blocks = (unsigned)(rows + 7) / 8;
    emulation::launch({blocks, 1, 1}, 256, 0, order, [&] {
        product_errors(left.data(), right.data(), wanted.data(), errors.data(), squares.data(), rows, columns);
    });
    std::vector<double> exact(rows);
    for (int row = 0; row < rows; row++) {
        exact[row] = -wanted[row];
        for (int column = 0; column < columns; column++) {
            size_t at = (size_t)row * columns + column;
            exact[row] += (double)left[at] * right[at];
        }
        expect(errors[row], exact[row], "product_errors", rows, columns);
        expect(squares[row], exact[row] * exact[row], "product_errors, squared", rows, columns);
    }
    const float upstream = -0.5f, factor = 3.0f;
    for (int accumulate : {0, 1}) {
        auto place = before;
        emulation::launch({blocks, 1, 1}, 256, 0, order, [&] {
            product_gradient(right.data(), errors.data(), place.data(), rows, columns, &upstream, factor, accumulate);
        });
        for (size_t at = 0; at < count; at++) {
            double value = (double)factor * upstream * exact[at / columns] * right[at] + (accumulate ? before[at] : 0);
            expect(place[at], value, "product_gradient", rows, columns);
        }
    }
}

int main() {
    int done = 0;
    for (Order order : {Order::First, Order::Last, Order::Shuffled})
        for (int rows : {1, 7, 8, 9, 50})
            for (int columns : {1, 31, 32, 33, 384}) {
                check(rows, columns, order);
                done++;
            }
    printf("product_errors and product_gradient: %d cases each as by plain loops\n", done);
}
