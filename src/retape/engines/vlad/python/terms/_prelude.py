"""Functions of arrays, written in the compiled subset itself.

Those whose names begin with `each_` work item by item; the function that they apply is
their first argument. That lengths are alike is asked before they are called.
"""


def new_array(shape, value):
    """The translator makes an array of this, full of a value."""
    raise NotImplementedError


def array_sum(a):
    total = 0.0
    for i in range(len(a)):
        total += a[i]
    return total


def each_of_array(f, a):
    result = new_array(len(a), 0.0)
    for i in range(len(a)):
        result[i] = f(a[i])
    return result


def each_of_two(f, a, b):
    result = new_array(len(a), 0.0)
    for i in range(len(a)):
        result[i] = f(a[i], b[i])
    return result


def each_with_number(f, a, x):
    result = new_array(len(a), 0.0)
    for i in range(len(a)):
        result[i] = f(a[i], x)
    return result


def each_of_number(f, x, a):
    result = new_array(len(a), 0.0)
    for i in range(len(a)):
        result[i] = f(x, a[i])
    return result


def item_add(x, y):
    return x + y


def item_subtract(x, y):
    return x - y


def item_multiply(x, y):
    return x * y


def item_divide(x, y):
    return x / y


def item_power(x, y):
    return x**y


def item_negative(x):
    return -x
