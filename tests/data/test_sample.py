import numpy as np

from bal.data import load_sample


def test_the_sample_holds_the_promised_images_with_every_class_alike():
    sample = load_sample()
    for (images, labels), per_class in [(sample.train, 1000), (sample.test, 200), (sample.ood, 200)]:
        assert images.shape == (10 * per_class, 28, 28)
        assert images.dtype == np.uint8
        assert np.bincount(labels).tolist() == [per_class] * 10
        assert images.reshape(len(images), -1).max(1).min() > 0, "no image is empty"


def test_no_test_image_is_also_a_training_image():
    sample = load_sample()
    train = {image.tobytes() for image in sample.train[0]}
    shared = sum(image.tobytes() in train for image in sample.test[0])
    assert shared == 0
